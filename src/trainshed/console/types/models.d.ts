// Models, versions and predictions.

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

  interface Requests {
    count: number;
    errors: number;
    p50Ms: number;
    p99Ms: number;
  }

  /** Of one version, in the last hour. Minutes without a request are omitted. */
  interface Traffic extends Requests {
    lastRequestTime?: string;
    minutes: (Requests & { time: string })[];
  }

  interface ModelDetails {
    model: Model;
    notes: string[];
    split: Record<string, number>;
    previousVersion: string;
    traffic: Record<string, Traffic>;
  }

  interface Tensor {
    dtype: string;
    shape: number[] | null;
  }

  interface Signature {
    inputs: Record<string, Tensor>;
    outputs: Record<string, Tensor>;
  }

  /** The body of a request. */
  interface Sample {
    instances: Json[];
    signature_name?: string;
  }

  interface Host {
    instance: number;
    pid: number;
    state: string;
    memoryBytes: number;
    ageSeconds: number;
    address: string;
  }

  interface Parity {
    difference: number | null;
    within: boolean;
    message: string;
  }

  /** Fields that are set by the creation of a version are missing before. */
  interface VersionDetails {
    version: Version;
    runtime: string;
    notes: string[];
    detail?: string;
    parity?: Parity | null;
    size?: number;
    sample?: Sample | null;
    signatures?: Record<string, Signature>;
    progress: string;
    hosts: Host[];
    log: string;
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
