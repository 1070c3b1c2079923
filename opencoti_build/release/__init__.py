"""Release files: manifest, checksums, notes."""
