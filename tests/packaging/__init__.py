"""How the tree is started, locked and shipped: scripts, lock files, image, and what no committed file may hold."""
