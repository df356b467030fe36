"""What the site needs beside Sphinx: its own extensions, and the pages that are made from the library."""
