"""A model that predicts: constants of a host, the fitted products, the replay of a loop's census, and advice."""
