"""What a key, a name, a setting or a configuration says; what is asked where none does."""
