package machines

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/lockkeeper/lockkeeper/internal/fencing"
)

// TestReadCheck: health checks of every API, as their users write them.
func TestReadCheck(t *testing.T) {
	t.Parallel()
	silent := []fencing.Check{{Type: "Ready", Status: "Unknown", Timeout: 5 * time.Minute}}
	for name, c := range map[string]struct {
		text string
		want HealthCheck
	}{
		"Cluster API": {`
spec:
  selector: {matchLabels: {pool: storage}}
  checks:
    nodeStartupTimeoutSeconds: 600
    unhealthyNodeConditions: [{type: Ready, status: Unknown, timeoutSeconds: 300}]
    unhealthyMachineConditions: [{type: DiskHealthy, status: "False", timeoutSeconds: 0}]
  remediation: {triggerIf: {unhealthyLessThanOrEqualTo: 40%}}`, HealthCheck{
			Checks: silent, MachineChecks: []fencing.Check{{Type: "DiskHealthy", Status: "False"}}, Limit: "40%",
		}},
		"Cluster API, with a template": {`
spec: {selector: {}, remediation: {templateRef: {kind: Metal3RemediationTemplate, name: reboot}}}`, HealthCheck{
			Template: true,
		}},
		"Cluster API, v1beta1": {`
spec:
  unhealthyConditions: [{type: Ready, status: Unknown, timeout: 300s}]
  maxUnhealthy: 40%
  unhealthyRange: ""`, HealthCheck{Checks: silent, Limit: "40%"}},
		"OpenShift, of metal, paused": {`
metadata: {annotations: {machine.openshift.io/remediation-strategy: external-baremetal, cluster.x-k8s.io/paused: ""}}
spec: {unhealthyConditions: [{type: Ready, status: Unknown, timeout: 5m}], maxUnhealthy: 1}`, HealthCheck{
			Checks: silent, Limit: "1", Template: true, Paused: true,
		}},
		"NodeHealthCheck": {`
spec:
  selector: {matchExpressions: [{key: storage, operator: Exists}]}
  minHealthy: 51%
  unhealthyConditions: [{type: Ready, status: Unknown, duration: 300s}]
  remediationTemplate: {kind: SelfNodeRemediationTemplate, name: reboot}`, HealthCheck{
			Checks: silent, Least: "51%", Template: true,
		}},
		"NodeHealthCheck, paused": {`spec: {pauseRequests: [an upgrade], maxUnhealthy: 2}`, HealthCheck{
			Paused: true, Limit: "2",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := readCheck(fromYAML(t, c.text))
			require.NoError(t, err)
			got.selector = nil
			require.Equal(t, c.want, got)
		})
	}
	for name, text := range map[string]string{
		"timeout": `spec: {unhealthyConditions: [{type: Ready, status: Unknown, timeout: soon}]}`,
		"unhealthyMachineConditions": `
spec: {checks: {unhealthyMachineConditions: [Ready]}}`,
		"spec.selector": `spec: {selector: {matchExpressions: [{key: storage, operator: Perhaps}]}}`,
	} {
		_, err := readCheck(fromYAML(t, text))
		require.ErrorContains(t, err, name)
	}
}

// fromYAML is an object as the API server sends it: numbers are whole.
func fromYAML(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	o := &unstructured.Unstructured{}
	require.NoError(t, json.Unmarshal(data, &o.Object))
	return o
}
