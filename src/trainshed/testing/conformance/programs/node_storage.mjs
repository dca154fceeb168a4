// @google-cloud/storage against a server: the calls of its own system tests, written anew, a test for each.
// The client finds the server through the proxy of its environment, as in a job. Signed URLs lead to STORAGE_URL, since
// Node's fetch knows no proxies. Environment: STORAGE_URL, STORAGE_KEY_FILE, STORAGE_PROJECT.

import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { gzipSync } from "node:zlib";

const require = createRequire(join(process.cwd(), "package.json"));
const { Storage, TransferManager } = require("@google-cloud/storage");

const url = process.env.STORAGE_URL;
const storage = new Storage({
  keyFilename: process.env.STORAGE_KEY_FILE,
  projectId: process.env.STORAGE_PROJECT,
});
const made = [];
const folder = mkdtempSync(join(tmpdir(), "node-storage-"));
const atServer = (uri) => uri.replace("https://storage.googleapis.com", url);
const unique = (name) => `node-${name}-${randomBytes(4).toString("hex")}`;
const fails = (code) => (error) => {
  assert.equal(Number(error.code), code, error.message);
  return true;
};

async function newBucket(name, options = {}) {
  const [bucket] = await storage.createBucket(unique(name), options);
  made.push(bucket);
  return bucket;
}

async function drained(stream) {
  const pieces = [];
  for await (const piece of stream) pieces.push(piece);
  return Buffer.concat(pieces);
}

let bucket;
before(async () => {
  bucket = await newBucket("shared");
});
after(async () => {
  for (const each of made) {
    await each.setMetadata({ retentionPolicy: null }).catch(() => {});
    const [files] = await each.getFiles({ versions: true }).catch(() => [[]]);
    for (const file of files) await file.delete().catch(() => {});
    await each.delete().catch(() => {});
  }
});

describe("buckets", () => {
  test("are made, found, listed and deleted", async () => {
    const own = await newBucket("one");
    assert.deepEqual(await own.exists(), [true]);
    const [found] = await storage.getBuckets({ prefix: own.name });
    assert.deepEqual(found.map((each) => each.name), [own.name]);
    await own.delete();
    assert.deepEqual(await own.exists(), [false]);
  });
  test("are listed in pages and as a stream", async () => {
    await newBucket("page");
    const [, next] = await storage.getBuckets({ maxResults: 1, autoPaginate: false });
    assert.equal(next.maxResults, 1);
    let count = 0;
    for await (const each of storage.getBucketsStream()) count += each.name ? 1 : 0;
    assert.ok(count >= 2);
  });
  test("are not made twice", async () => {
    await assert.rejects(storage.createBucket(bucket.name), fails(409));
  });
  test("keep location and storage class", async () => {
    const own = await newBucket("class", { location: "EUROPE-WEST1", nearline: true });
    const [metadata] = await own.getMetadata();
    assert.equal(metadata.location, "EUROPE-WEST1");
    assert.equal(metadata.storageClass, "NEARLINE");
    await own.setStorageClass("coldline");
    assert.equal((await own.getMetadata())[0].storageClass, "COLDLINE");
  });
  test("keep labels", async () => {
    const own = await newBucket("labels");
    await own.setLabels({ a: "1", b: "2" });
    assert.deepEqual((await own.getLabels())[0], { a: "1", b: "2" });
    await own.deleteLabels("a");
    assert.deepEqual((await own.getLabels())[0], { b: "2" });
    await own.deleteLabels();
    assert.deepEqual((await own.getLabels())[0], {});
  });
  test("keep CORS rules", async () => {
    const own = await newBucket("cors");
    const rules = [{ maxAgeSeconds: 60, method: ["GET"], origin: ["*"], responseHeader: ["x-a"] }];
    await own.setCorsConfiguration(rules);
    assert.deepEqual((await own.getMetadata())[0].cors, rules);
  });
  test("keep lifecycle rules", async () => {
    const own = await newBucket("lifecycle");
    await own.addLifecycleRule({ action: { type: "Delete" }, condition: { age: 30, isLive: true } });
    await own.addLifecycleRule({ action: { type: "Delete" }, condition: { numNewerVersions: 3 } });
    assert.equal((await own.getMetadata())[0].lifecycle.rule.length, 2);
    await own.addLifecycleRule({ action: { type: "Delete" }, condition: { age: 1 } }, { append: false });
    assert.equal((await own.getMetadata())[0].lifecycle.rule.length, 1);
  });
  test("abort uploads in parts by a lifecycle rule", async () => {
    const own = await newBucket("abort");
    await own.addLifecycleRule({ action: { type: "AbortIncompleteMultipartUpload" }, condition: { age: 1 } });
  });
  test("keep retention policies and lock them", async () => {
    const own = await newBucket("retention");
    await own.setRetentionPeriod(2);
    const [metadata] = await own.getMetadata();
    assert.equal(Number(metadata.retentionPolicy.retentionPeriod), 2);
    const file = own.file("kept");
    await file.save("x");
    await assert.rejects(file.delete(), fails(403));
    await own.removeRetentionPeriod();
    await file.delete();
    await own.setRetentionPeriod(1);
    const [again] = await own.getMetadata();
    await own.lock(again.metageneration);
    await assert.rejects(own.removeRetentionPeriod(), fails(403));
  });
  test("hold new objects by default", async () => {
    const own = await newBucket("hold");
    await own.setMetadata({ defaultEventBasedHold: true });
    const file = own.file("held");
    await file.save("x");
    assert.equal((await file.getMetadata())[0].eventBasedHold, true);
    await assert.rejects(file.delete(), fails(403));
    await file.setMetadata({ eventBasedHold: false });
    await file.delete();
  });
  test("check the metageneration", async () => {
    const [metadata] = await bucket.getMetadata();
    const wrong = Number(metadata.metageneration) + 7;
    await assert.rejects(bucket.setMetadata({ labels: { a: "b" } }, { ifMetagenerationMatch: wrong }), fails(412));
  });
  test("are not deleted with objects in them", async () => {
    const own = await newBucket("full");
    await own.file("x").save("x");
    await assert.rejects(own.delete(), fails(409));
  });
  test("show their policy, and which permissions there are", async () => {
    assert.ok((await bucket.iam.getPolicy())[0].bindings.length > 0);
    const [permissions] = await bucket.iam.testPermissions(["storage.objects.get", "storage.buckets.get"]);
    assert.equal(permissions["storage.objects.get"], true);
  });
  test("can be given to others by a policy", async () => {
    const [policy] = await bucket.iam.getPolicy();
    policy.bindings.push({ role: "roles/storage.objectViewer", members: ["allUsers"] });
    await bucket.iam.setPolicy(policy);
  });
  test("show access lists", async () => {
    assert.ok((await bucket.acl.get())[0].length > 0);
  });
  test("change access lists", async () => {
    await bucket.acl.add({ entity: "user-somebody@example.com", role: "READER" });
  });
  test("become public", async () => {
    await (await newBucket("public")).makePublic();
  });
  test("have uniform access", async () => {
    await (await newBucket("uniform")).setMetadata({ iamConfiguration: { uniformBucketLevelAccess: { enabled: true } } });
  });
  test("prevent public access", async () => {
    await newBucket("pap", { iamConfiguration: { publicAccessPrevention: "enforced" } });
  });
  test("log to another bucket", async () => {
    await bucket.enableLogging({ prefix: "log" });
  });
  test("have a default key", async () => {
    await bucket.setMetadata({ encryption: { defaultKmsKeyName: "projects/p/locations/l/keyRings/r/cryptoKeys/k" } });
  });
  test("let requesters pay", async () => {
    await (await newBucket("pays")).enableRequesterPays();
  });
  test("send notifications", async () => {
    await bucket.createNotification("projects/p/topics/t");
  });
  test("choose storage classes themselves", async () => {
    await newBucket("autoclass", { autoclass: { enabled: true } });
  });
  test("keep what was deleted", async () => {
    await newBucket("soft", { softDeletePolicy: { retentionDurationSeconds: 604800 } });
  });
  test("have a recovery point objective", async () => {
    const own = await newBucket("rpo", { location: "NAM4" });
    await own.setMetadata({ rpo: "ASYNC_TURBO" });
    assert.equal((await own.getMetadata())[0].rpo, "ASYNC_TURBO");
  });
});

describe("objects", () => {
  test("are written, read and deleted", async () => {
    const file = bucket.file("a folder/größe+&=~.txt");
    await file.save("hello", { contentType: "text/x-odd", metadata: { metadata: { team: "vision" } } });
    assert.equal((await file.download())[0].toString(), "hello");
    const [metadata] = await file.getMetadata();
    assert.deepEqual([metadata.contentType, metadata.metadata, metadata.size], ["text/x-odd", { team: "vision" }, "5"]);
    await file.delete();
    assert.deepEqual(await file.exists(), [false]);
  });
  for (const resumable of [false, true]) {
    test(`are uploaded from files, resumable: ${resumable}`, async () => {
      const path = join(folder, "upload.bin");
      const data = randomBytes(300_000);
      writeFileSync(path, data);
      const [file] = await bucket.upload(path, { destination: `up/${resumable}`, resumable, validation: "crc32c" });
      const [metadata] = await file.getMetadata();
      assert.equal(metadata.md5Hash, createHash("md5").update(data).digest("base64"));
      assert.deepEqual((await file.download({ validation: "md5" }))[0], data);
    });
  }
  test("are uploaded in chunks", async () => {
    const data = randomBytes(1_000_000);
    const file = bucket.file("chunks");
    await file.save(data, { resumable: true, chunkSize: 256 * 1024 });
    assert.deepEqual((await file.download())[0], data);
  });
  test("are streamed both ways", async () => {
    const file = bucket.file("streamed");
    const data = randomBytes(200_000);
    await new Promise((resolve, reject) => {
      file.createWriteStream({ resumable: false }).on("error", reject).on("finish", resolve).end(data);
    });
    assert.deepEqual(await drained(file.createReadStream()), data);
  });
  test("are read by ranges", async () => {
    const file = bucket.file("ranges");
    await file.save("0123456789");
    assert.equal((await drained(file.createReadStream({ start: 2, end: 4 }))).toString(), "234");
    assert.equal((await drained(file.createReadStream({ start: 8 }))).toString(), "89");
  });
  test("are downloaded to a file", async () => {
    const destination = join(folder, "down.txt");
    await bucket.file("down").save("down");
    await bucket.file("down").download({ destination });
    assert.equal(readFileSync(destination, "utf8"), "down");
  });
  test("are packed on upload and unpacked on download", async () => {
    const file = bucket.file("packed.txt");
    await file.save("packed ".repeat(1000), { gzip: true });
    assert.equal((await file.getMetadata())[0].contentEncoding, "gzip");
    assert.equal((await file.download())[0].toString(), "packed ".repeat(1000));
  });
  test("stay packed if they are asked for so", async () => {
    const packed = gzipSync("packed");
    const file = bucket.file("stays.gz");
    await file.save(packed, { metadata: { contentEncoding: "gzip" } });
    assert.deepEqual((await file.download({ decompress: false }))[0], packed);
  });
  test("are empty", async () => {
    await bucket.file("empty").save("");
    assert.equal((await bucket.file("empty").download())[0].length, 0);
  });
  test("are missing", async () => {
    await assert.rejects(bucket.file("absent").download(), fails(404));
    await assert.rejects(bucket.file("absent").getMetadata(), fails(404));
  });
  test("change their metadata", async () => {
    const file = bucket.file("metadata");
    await file.save("x");
    await file.setMetadata({ cacheControl: "no-store", metadata: { a: "1", b: "2" } });
    await file.setMetadata({ metadata: { a: null } });
    const [metadata] = await file.getMetadata();
    assert.deepEqual([metadata.cacheControl, metadata.metadata], ["no-store", { b: "2" }]);
  });
  test("keep a custom time", async () => {
    const file = bucket.file("time");
    await file.save("x", { metadata: { customTime: "2026-01-02T03:04:05.000Z" } });
    assert.match((await file.getMetadata())[0].customTime, /^2026-01-02T03:04:05/);
  });
  test("are copied, within a bucket and into another", async () => {
    const file = bucket.file("source");
    await file.save("copy me", { contentType: "text/x-odd" });
    const other = await newBucket("other");
    const [copy] = await file.copy(other.file("copied"));
    assert.equal((await copy.download())[0].toString(), "copy me");
    assert.equal((await copy.getMetadata())[0].contentType, "text/x-odd");
  });
  test("are moved and renamed", async () => {
    const file = bucket.file("before");
    await file.save("x");
    await file.rename("after");
    assert.deepEqual(await file.exists(), [false]);
    assert.deepEqual(await bucket.file("after").exists(), [true]);
    await bucket.file("after").moveFileAtomic("atomic");
    assert.deepEqual(await bucket.file("atomic").exists(), [true]);
  });
  test("change their storage class", async () => {
    const file = bucket.file("class");
    await file.save("x");
    await file.setStorageClass("nearline");
    assert.equal((await file.getMetadata())[0].storageClass, "NEARLINE");
  });
  test("are combined", async () => {
    const parts = ["1", "2", "3"].map((name) => bucket.file(`part-${name}`));
    for (const part of parts) await part.save(part.name);
    const whole = bucket.file("whole.txt");
    await bucket.combine(parts, whole);
    assert.equal((await whole.download())[0].toString(), "part-1part-2part-3");
  });
  test("are written only under conditions", async () => {
    const file = bucket.file("condition");
    await file.save("x", { preconditionOpts: { ifGenerationMatch: 0 } });
    await assert.rejects(file.save("y", { preconditionOpts: { ifGenerationMatch: 0 } }), fails(412));
    const [metadata] = await file.getMetadata();
    await file.save("y", { preconditionOpts: { ifGenerationMatch: metadata.generation } });
  });
  test("are held", async () => {
    const own = await newBucket("held");
    const file = own.file("held");
    await file.save("x");
    await file.setMetadata({ temporaryHold: true });
    await assert.rejects(file.delete(), fails(403));
    await file.setMetadata({ temporaryHold: false });
    await file.delete();
  });
  test("have versions", async () => {
    const own = await newBucket("versions", { versioning: { enabled: true } });
    const file = own.file("v");
    await file.save("one");
    const [first] = await file.getMetadata();
    await file.save("two");
    const [all] = await own.getFiles({ versions: true });
    assert.equal(all.length, 2);
    assert.equal((await own.file("v", { generation: first.generation }).download())[0].toString(), "one");
  });
  test("are listed by prefix, delimiter and glob", async () => {
    for (const name of ["l/a.txt", "l/b/c.txt", "l/b/d.bin"]) await bucket.file(name).save(name);
    const names = async (query) => (await bucket.getFiles(query))[0].map((each) => each.name);
    assert.deepEqual(await names({ prefix: "l/", delimiter: "/" }), ["l/a.txt"]);
    assert.deepEqual(await names({ matchGlob: "l/**.txt" }), ["l/a.txt", "l/b/c.txt"]);
    assert.deepEqual(await names({ prefix: "l/", startOffset: "l/b", endOffset: "l/b/d" }), ["l/b/c.txt"]);
    const [page, next] = await bucket.getFiles({ prefix: "l/", maxResults: 2, autoPaginate: false });
    assert.equal(page.length, 2);
    assert.equal((await bucket.getFiles({ ...next, autoPaginate: false }))[0].length, 1);
  });
  test("are deleted by prefix", async () => {
    for (const name of ["gone/a", "gone/b"]) await bucket.file(name).save(name);
    await bucket.deleteFiles({ prefix: "gone/" });
    assert.deepEqual((await bucket.getFiles({ prefix: "gone/" }))[0], []);
  });
  test("have a name and folders below it", async () => {
    await bucket.file("both").save("x");
    await bucket.file("both/below").save("y");
  });
  test("show their access list", async () => {
    await bucket.file("list").save("x");
    assert.ok((await bucket.file("list").acl.get())[0].length > 0);
  });
  test("change their access list", async () => {
    await bucket.file("list2").save("x");
    await bucket.file("list2").acl.add({ entity: "user-somebody@example.com", role: "READER" });
  });
  test("become public one by one", async () => {
    await bucket.file("public").save("x");
    await bucket.file("public").makePublic();
  });
  test("are encrypted with keys of the client", async () => {
    const file = bucket.file("encrypted").setEncryptionKey(randomBytes(32));
    await file.save("secret");
    assert.equal((await file.download())[0].toString(), "secret");
  });
  test("are retained on their own", async () => {
    const own = await newBucket("object-retention", { enableObjectRetention: true });
    await own.file("x").save("x");
    await own.file("x").setMetadata({ retention: { mode: "Unlocked", retainUntilTime: "2036-01-01T00:00:00Z" } });
  });
});

describe("uploads", () => {
  test("continue by their URL alone", async () => {
    const file = bucket.file("by-url");
    const [uri] = await file.createResumableUpload({ metadata: { contentType: "text/x-odd" } });
    const first = await fetch(atServer(uri), { method: "PUT", body: "01", headers: { "content-range": "bytes 0-1/4" } });
    assert.equal(first.status, 308);
    const rest = await fetch(atServer(uri), { method: "PUT", body: "23", headers: { "content-range": "bytes 2-3/4" } });
    assert.equal(rest.status, 200);
    assert.equal((await file.download())[0].toString(), "0123");
  });
  test("go on where they stopped", async () => {
    const file = bucket.file("resumed");
    const data = randomBytes(600_000);
    const [uri] = await file.createResumableUpload();
    await fetch(atServer(uri), { method: "PUT", body: data.subarray(0, 262_144), headers: { "content-range": "bytes 0-262143/600000" } });
    await new Promise((resolve, reject) => {
      const stream = file.createWriteStream({ uri, resumable: true, offset: 262_144, validation: false });
      stream.on("error", reject).on("finish", resolve).end(data.subarray(262_144));
    });
    assert.deepEqual((await file.download())[0], data);
  });
  test("are made in parts at the same time", async () => {
    const path = join(folder, "parts.bin");
    const data = randomBytes((5 << 20) * 2 + 1000);
    writeFileSync(path, data);
    const manager = new TransferManager(bucket);
    await manager.uploadFileInChunks(path, { chunkSizeBytes: 5 << 20, uploadName: "in parts" });
    assert.deepEqual((await bucket.file("in parts").download())[0], data);
  });
  test("are made of many files, and downloaded again", async () => {
    const paths = ["m1", "m2"].map((name) => join(folder, name));
    for (const path of paths) writeFileSync(path, path);
    const manager = new TransferManager(bucket);
    await manager.uploadManyFiles(paths, { customDestinationBuilder: (path) => `many/${path.split("/").pop()}` });
    const down = await manager.downloadManyFiles([bucket.file("many/m1"), bucket.file("many/m2")]);
    assert.equal(down.length, 2);
    const chunks = await manager.downloadFileInChunks("many/m1", { destination: join(folder, "m1-again") });
    assert.ok(chunks);
  });
});

describe("signed URLs", () => {
  for (const version of ["v2", "v4"]) {
    const signed = (file, action, more = {}) =>
      file
        .getSignedUrl({ version, action, expires: Date.now() + 60_000, host: url, ...more })
        .then(([text]) => text);
    test(`${version} read, write and delete`, async () => {
      const file = bucket.file(`signed/${version} ü.txt`);
      const put = await signed(file, "write", { contentType: "text/plain" });
      const written = await fetch(put, { method: "PUT", body: "signed", headers: { "content-type": "text/plain" } });
      assert.equal(written.status, 200, await written.text());
      assert.equal(await (await fetch(await signed(file, "read"))).text(), "signed");
      assert.equal((await fetch(await signed(file, "delete"), { method: "DELETE" })).status, 204);
      assert.deepEqual(await file.exists(), [false]);
    });
    test(`${version} begin resumable uploads`, async () => {
      const file = bucket.file(`signed-resumable-${version}`);
      const start = await fetch(await signed(file, "resumable"), { method: "POST", headers: { "x-goog-resumable": "start" } });
      assert.equal(start.status, 201, await start.text());
      assert.equal((await fetch(atServer(start.headers.get("location")), { method: "PUT", body: "resumed" })).status, 200);
      assert.equal((await file.download())[0].toString(), "resumed");
    });
    test(`${version} cover headers and parameters`, async () => {
      const file = bucket.file("covered");
      await file.save("x");
      const text = await signed(file, "read", {
        extensionHeaders: { "x-goog-custom": "1" },
        queryParams: { "response-content-type": "text/x-odd" },
      });
      assert.equal((await fetch(text)).status, 403);
      const read = await fetch(text, { headers: { "x-goog-custom": "1" } });
      assert.deepEqual([read.status, read.headers.get("content-type")], [200, "text/x-odd"]);
    });
    test(`${version} end`, async () => {
      const file = bucket.file("ended");
      await file.save("x");
      const text = await signed(file, "read", { expires: Date.now() + 1500 });
      await new Promise((resolve) => setTimeout(resolve, 3000));
      assert.equal((await fetch(text)).status, 403);
    });
    test(`${version} list a bucket`, async () => {
      const [text] = await bucket.getSignedUrl({ version, action: "list", expires: Date.now() + 60_000, host: url });
      const listed = await fetch(text);
      assert.equal(listed.status, 200, await listed.text());
    });
    test(`${version} policies of forms`, async () => {
      const file = bucket.file(`form-${version}`);
      const options = { expires: Date.now() + 60_000 };
      const [policy] =
        version === "v4" ? await file.generateSignedPostPolicyV4(options) : await file.generateSignedPostPolicyV2(options);
      const form = new FormData();
      const fields = policy.fields ?? {
        key: file.name,
        GoogleAccessId: storage.authClient.jsonContent?.client_email,
        policy: policy.base64,
        signature: policy.signature,
      };
      for (const [name, value] of Object.entries(fields)) form.append(name, value);
      form.append("file", new Blob(["by form"]));
      const posted = await fetch(`${url}/${bucket.name}`, { method: "POST", body: form });
      assert.ok([200, 204].includes(posted.status), await posted.text());
      assert.equal((await file.download())[0].toString(), "by form");
    });
  }
});

describe("the service", () => {
  test("has a service account", async () => {
    const [account] = await storage.getServiceAccount();
    assert.ok(account.emailAddress);
  });
  test("makes HMAC keys", async () => {
    await storage.createHmacKey("conformance@conformance.iam.gserviceaccount.com");
  });
});
