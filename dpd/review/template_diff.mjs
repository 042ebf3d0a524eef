// Compares CloudFormation templates with AWS's own library, and writes what it says as JSON.
// stdin: {"modules": folder with node_modules, "pairs": {stack: [before, after]}}; stdout: {stack: {...}}.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';

const given = JSON.parse(readFileSync(0, 'utf8'));
const { fullDiff } = createRequire(`${given.modules}/`)('@aws-cdk/cloudformation-diff');

function resource(id, change) {
  const properties = [];
  change.forEachDifference((kind, name, difference) => {
    if (difference.isDifferent) {
      properties.push({
        place: kind === 'Property' ? `Properties.${name}` : name,
        impact: difference.changeImpact ?? null,
        before: difference.oldValue ?? null,
        after: difference.newValue ?? null,
      });
    }
  });
  return {
    id,
    type: change.newResourceType ?? change.oldResourceType ?? '',
    addition: change.isAddition,
    removal: change.isRemoval,
    type_changed: Boolean(change.resourceTypeChanged),
    impact: change.changeImpact,
    properties,
  };
}

const result = {};
for (const [stack, [before, after]] of Object.entries(given.pairs)) {
  const difference = fullDiff(before, after);
  const resources = [];
  difference.resources.forEachDifference((id, change) => resources.push(resource(id, change)));
  const rules = difference.securityGroupChanges;
  const access = difference.iamChanges;
  result[stack] = {
    resources,
    broadened: difference.permissionsBroadened,
    statements: access.statements.additions.map((statement) => statement.toJson?.() ?? statement),
    statements_gone: access.statements.removals.map((statement) => statement.toJson?.() ?? statement),
    managed_policies: access.managedPolicies.additions.map((policy) => policy.toJson?.() ?? policy),
    ingress: rules.ingress.additions.map((rule) => rule.toJson?.() ?? rule),
    egress: rules.egress.additions.map((rule) => rule.toJson?.() ?? rule),
    outputs: difference.outputs.differenceCount,
  };
}
process.stdout.write(JSON.stringify(result));
