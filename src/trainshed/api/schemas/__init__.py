"""The shapes of bodies and responses of Trainshed's own API."""
