// Models, versions, operations and predictions of the ml v1 API.

declare namespace Api {
  type VersionState = "CREATING" | "READY" | "UPDATING" | "FAILED" | "DELETING";

  type Json = string | number | boolean | null | Json[] | { [name: string]: Json };

  interface Version {
    name: string;
    state: VersionState;
    createTime: string;
    etag: string;
    isDefault?: boolean;
    lastUseTime?: string;
    description?: string;
    deploymentUri?: string;
    container?: { image: string };
    errorMessage?: string;
    labels?: Labels;
  }

  interface Versions {
    versions?: Version[];
    nextPageToken?: string;
  }

  interface Model {
    name: string;
    etag: string;
    description?: string;
    labels?: Labels;
    defaultVersion?: Version;
  }

  interface Models {
    models?: Model[];
    nextPageToken?: string;
  }

  interface Operation {
    name: string;
    done?: boolean;
    error?: { code: number; message: string };
  }

  interface Answer {
    predictions?: Json[];
  }
}
