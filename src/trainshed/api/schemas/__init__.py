"""The shapes of bodies and responses of Trainshed's own API. The class `NameBody` is `Name` in its document."""
