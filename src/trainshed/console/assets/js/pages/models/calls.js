// @ts-check
// Commands that call a model from other programs. They contain no token: they fetch one when they run.

const LONG = 400; // characters of an instance that fit into a command

/** @typedef {{id: string, title: string, text: string}} Call */

/**
 * @param {{url: string, project: string, model: string, version: string, sample: Api.Sample | null}} what
 *   no version: the default one
 * @returns {Call[]}
 */
export function calls({ url, project, model, version, sample }) {
  const instances = sample?.instances?.slice(0, 1) ?? [];
  const body = JSON.stringify({ ...sample, instances });
  const short = instances.length > 0 && body.length <= LONG;
  const name = `projects/${project}/models/${model}${version ? `/versions/${version}` : ""}`;
  const flag = version ? ` --version ${version}` : "";
  const file = short ? "" : "# request.json: one instance a line; the playground shows what one looks like\n";
  const lines = `${file}trainshed predict --model ${model}${flag} --project ${project} --json-instances request.json`;
  return [
    { id: "curl", title: "curl", text: curl(url, name, short ? body : "") },
    { id: "client", title: "Python", text: client(project, model, version, short ? JSON.stringify(instances[0]) : "") },
    {
      id: "google",
      title: "Python, Google's client",
      text: google(url, name, short ? python(instances[0]) : "instance"),
    },
    {
      id: "trainshed",
      title: "trainshed",
      text: short ? `echo ${quoted(JSON.stringify(instances[0]))} > request.json\n${lines}` : lines,
    },
    { id: "gcloud", title: "gcloud", text: gcloud(url, project, model, flag) },
  ];
}

/** @param {string} url @param {string} name @param {string} body empty: it is in a file */
function curl(url, name, body) {
  const data = body ? quoted(body) : "@request.json";
  const note = body ? "" : '# request.json holds {"instances": [...]}\n';
  return `${note}curl -X POST \\
    -H "Authorization: Bearer $(trainshed auth print-access-token)" \\
    -H "Content-Type: application/json" \\
    --data ${data} \\
    ${url}/v1/${name}:predict`;
}

/** @param {string} project @param {string} model @param {string} version @param {string} instance in JSON, or empty */
function client(project, model, version, instance) {
  const given = instance ? python(JSON.parse(instance)) : "instance";
  return `import trainshed

ts = trainshed.connect(project=${JSON.stringify(project)})
model = ts.models.get(${JSON.stringify(model)})
answer = model.predict([${given}]${version ? `, version=${JSON.stringify(version)}` : ""})
print(answer)`;
}

/** @param {string} url @param {string} name @param {string} instance */
function google(url, name, instance) {
  return `import subprocess
from google.oauth2.credentials import Credentials
from googleapiclient import discovery

token = subprocess.check_output(["trainshed", "auth", "print-access-token"], text=True).strip()
ml = discovery.build(
    "ml", "v1", credentials=Credentials(token), client_options={"api_endpoint": ${JSON.stringify(url)}}
)
body = {"instances": [${instance}]}
answer = ml.projects().predict(name=${JSON.stringify(name)}, body=body).execute()
print(answer["predictions"])`;
}

/** @param {string} url @param {string} project @param {string} model @param {string} flag */
function gcloud(url, project, model, flag) {
  return `trainshed auth print-access-token > token
export CLOUDSDK_API_ENDPOINT_OVERRIDES_ML=${url}/
export CLOUDSDK_AI_PLATFORM_REGION=global
export CLOUDSDK_AUTH_ACCESS_TOKEN_FILE=token
export CLOUDSDK_CORE_PROJECT=${project}

gcloud ai-platform predict --model ${model}${flag} --json-instances request.json`;
}

/** A value as a Python literal. @param {Api.Json} value @returns {string} */
function python(value) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value !== "object") return JSON.stringify(value);
  return `{${Object.entries(value)
    .map(([name, each]) => `${JSON.stringify(name)}: ${python(each)}`)
    .join(", ")}}`;
}

/** Quote a word for a shell. @param {string} text */
function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
