// An OpenID provider for the tests: node provider.mjs MODULE PORT REDIRECT_URI
// Anyone signs in by name. A line of stdin such as {"ada": ["students"]} sets the groups of people; each is answered.
import { createInterface } from "node:readline";

const [module, port, redirectUri] = process.argv.slice(2);
const { default: Provider } = await import(module);
const groups = new Map();
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [
    {
      client_id: "trainshed",
      client_secret: "the secret of the client",
      redirect_uris: [redirectUri],
      grant_types: ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
    },
  ],
  claims: { openid: ["sub"], profile: ["preferred_username"], email: ["email"], groups: ["groups"] },
  findAccount: (_context, sub) => ({
    accountId: sub,
    claims: () => ({ sub, preferred_username: sub, groups: groups.get(sub) ?? [] }),
  }),
  features: { deviceFlow: { enabled: true } },
  pkce: { required: () => true },
  cookies: { keys: ["for tests"] },
});
createInterface({ input: process.stdin })
  .on("line", (line) => {
    for (const [name, its] of Object.entries(JSON.parse(line))) groups.set(name, its);
    console.log("set");
  })
  .on("close", () => process.exit()); // the tests have ended
provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
