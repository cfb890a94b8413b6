"""See the file of the same concern in this folder."""
