// Buckets and objects of Cloud Storage's API.

declare namespace Api {
  interface Bucket {
    name: string;
    location: string;
    timeCreated: string;
  }

  interface Buckets {
    items?: Bucket[];
    nextPageToken?: string;
  }

  /** An object. A list may have only some of these fields. */
  interface StoredObject {
    name: string;
    size: string;
    updated: string;
    contentType: string;
    contentEncoding?: string;
    generation?: string;
    md5Hash?: string;
    crc32c?: string;
    metadata?: Record<string, string>;
  }

  interface Objects {
    items?: StoredObject[];
    prefixes?: string[];
    nextPageToken?: string;
  }
}
