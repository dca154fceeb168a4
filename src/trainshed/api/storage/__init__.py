"""/storage/v1, /upload, /download, /batch: Cloud Storage's JSON API."""
