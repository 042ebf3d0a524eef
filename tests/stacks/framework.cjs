// Runs the provider framework as CDK ships it, and prints the answer that it would send to CloudFormation.
// argv: folder of the framework's code, entry point, event as JSON, what the user's function gave as JSON.
const path = require("node:path");
const Module = require("node:module");

const [folder, entry, event, result] = process.argv.slice(2);
const load = Module._load;
// Only what leaves the process is replaced: the call of the user's function, and the answer.
Module._load = (name, ...more) => (name.startsWith("@aws-sdk/") ? {} : load(name, ...more));
const outbound = require(path.join(folder, "outbound.js"));
outbound.invokeFunction = async () => JSON.parse(result);
outbound.httpRequest = async (_, body) => process.stdout.write(body);
process.env.USER_IS_COMPLETE_FUNCTION_ARN = process.env.USER_ON_EVENT_FUNCTION_ARN = `arn:aws:lambda:us-east-2:111122223333:function:${"f".repeat(64)}`;
console.log = () => {};
require(path.join(folder, "framework.js"))[entry](JSON.parse(event));
