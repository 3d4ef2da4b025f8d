"""How connectors are found, and what is loaded for them."""
