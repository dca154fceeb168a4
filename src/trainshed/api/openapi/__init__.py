"""The OpenAPI document of Trainshed's own API, derived from its routes, and what is generated from it."""
