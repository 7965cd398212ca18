"""What a sweep says: answers read off the model's draws, and the published method beside them."""
