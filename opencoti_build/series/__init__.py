"""The numbered patch series: files, checks and application."""
