"""The one extractor of tar and zip files that users send."""
