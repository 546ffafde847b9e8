"""Tasks on devices and machines: the engine, Ray, places."""
