"""A simulated asynchronous device in real time, for those who have no GPU: calls return early and waits really wait."""
