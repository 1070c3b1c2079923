"""Gates: measured proofs that the patched engine may ship (DESIGN section 2)."""
