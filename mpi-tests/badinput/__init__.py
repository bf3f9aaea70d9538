"""Bad input and bad days, tried for real."""
