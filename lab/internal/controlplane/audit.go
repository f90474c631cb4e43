package controlplane

import (
	"fmt"
	"os"

	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

// auditPolicy keeps what tests ask of the API server afterwards: every eviction and every deletion of a pod with its
// answer, and every request of the service accounts, so that rights can be compared with what is used. All else would
// be a hundred lines a second.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - level: Metadata
    verbs: [create]
    resources: [{group: "", resources: [pods/eviction]}]
  - level: Metadata
    verbs: [delete, deletecollection]
    resources: [{group: "", resources: [pods]}]
  - level: None
    userGroups: ["system:serviceaccounts:kube-system"]
  - level: Metadata
    userGroups: ["system:serviceaccounts"]
  - level: None
`

func auditPolicyFile(inst instance.Instance) string { return inst.Path("pki", "audit-policy.yaml") }

func writeAuditPolicy(inst instance.Instance) error {
	if err := os.WriteFile(auditPolicyFile(inst), []byte(auditPolicy), 0o600); err != nil {
		return fmt.Errorf("audit policy: %w", err)
	}
	return nil
}
