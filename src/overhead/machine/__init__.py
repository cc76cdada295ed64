"""Where it is measured: the host, its devices, its clock, and what disturbs them."""
