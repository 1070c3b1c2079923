"""The single file: zip reader and writer, start script, launcher."""
