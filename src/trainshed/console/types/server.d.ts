// The server, its buckets, and a project at a glance.

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
    created: string;
    expires: string | null;
    revoked: string | null;
  }

  interface Tokens {
    tokens: Token[];
  }

  /** A token that was just made. */
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
    memory_used_bytes: number;
  }

  interface Machine {
    cpus: number;
    cpu: number;
    memory_bytes: number;
    memory_used_bytes: number;
    disk_bytes: number;
    disk_free_bytes: number;
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
    default_version: string;
    versions: number;
    requests_1h: number;
    errors_1h: number;
    p50_ms: number | null;
    p99_ms: number | null;
  }

  interface Overview {
    jobs: Record<"QUEUED" | "RUNNING" | "SUCCEEDED_24H" | "FAILED_24H", number>;
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

  /** An object. A list may be asked for some of these alone. */
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
