// The server, its buckets, and the overview of a project.

declare namespace Api {
  type Role = "artifact-reader" | "viewer" | "editor" | "owner";

  interface Session {
    user: string;
    project: string;
    role: Role;
    projects: string[];
    version: string;
    url: string;
    authentication: boolean;
  }

  interface Token {
    id: string;
    user: string;
    project: string;
    role: Role;
    label: string;
    createTime: string;
    expireTime: string | null;
    revokeTime: string | null;
  }

  interface Tokens {
    tokens: Token[];
  }

  /** A token that was just created. */
  interface Secret extends Token {
    token: string;
  }

  interface Setting {
    name: string;
    value: Json;
    default: Json;
    source: string;
    description: string;
  }

  interface Settings {
    settings: Setting[];
  }

  interface Runtime {
    name: string;
    python: string;
    summary: string;
    state: string;
  }

  interface Runtimes {
    runtimes: Runtime[];
  }

  interface Glance {
    time: string;
    cpu: number;
    memoryUsedBytes: number;
  }

  interface Machine {
    cpus: number;
    cpu: number;
    memoryBytes: number;
    memoryUsedBytes: number;
    diskBytes: number;
    diskFreeBytes: number;
    history: Glance[];
  }

  interface Alert {
    severity: "error" | "warning";
    message: string;
    remedy: string;
    link: string;
  }

  interface RunningRow extends JobRow {
    progress: Standing | null;
  }

  interface QueuedRow extends JobRow {
    waiting: string;
  }

  interface ModelRow {
    name: string;
    defaultVersion: string;
    versions: number;
    requests1h: number;
    errors1h: number;
    p50Ms: number | null;
    p99Ms: number | null;
  }

  interface Overview {
    jobs: Record<"queued" | "running" | "succeeded24h" | "failed24h", number>;
    running: RunningRow[];
    queued: QueuedRow[];
    models: ModelRow[];
    machine: Machine;
    alerts: Alert[];
  }

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
