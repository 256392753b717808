"""The broker's config: tables of config keys, dynamic configs, and their description for clients."""
