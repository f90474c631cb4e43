package api

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
)

// policy is a MaintenancePolicy with the given spec, as a person would write it.
func policy(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte("spec: "+spec), &u.Object))
	u.SetAPIVersion(v1alpha1.GroupVersion.String())
	u.SetKind("MaintenancePolicy")
	u.SetNamespace("default")
	u.SetName(name)
	return u
}

func TestDefaultsFitRook(t *testing.T) {
	require.NoError(t, server.Create(t.Context(), policy(t, "defaults", `{ceph: {}}`)))
	var got v1alpha1.MaintenancePolicy
	require.NoError(t, server.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "defaults"}, &got))

	yes := true
	assert.Equal(t, &v1alpha1.CephSpec{
		AtRest: "One", Restarts: v1alpha1.RestartsApprove,
		Connection: v1alpha1.CephConnection{
			MonEndpoints: v1alpha1.KeyReference{Name: "rook-ceph-mon-endpoints", Key: "data"},
			Credentials: v1alpha1.CredentialsReference{
				Name: "rook-ceph-mon", UserKey: "ceph-username",
				SecretKey: "ceph-secret",
			},
		},
		OSDs: v1alpha1.OSDSelection{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "rook-ceph-osd"}},
			IDLabel:  "ceph-osd-id", FailureDomainLabel: "topology-location-{type}",
		},
		ManagePodBudgets:      &yes,
		OSDMaintenanceTimeout: &metav1.Duration{Duration: 30 * time.Minute},
		PGHealthCheckTimeout:  &metav1.Duration{},
		PGHealthyRegex:        `^active(\+(clean|deep|scrubbing|snaptrim|snaptrim_wait))+$`,
		AnnouncementTimeout:   &metav1.Duration{Duration: time.Minute},
	}, got.Spec.Ceph)
}

func TestWhatIsSaidIsKept(t *testing.T) {
	spec := `
  ceph:
    connection:
      monEndpoints: {name: mons, key: endpoints}
      credentials: {name: lockkeeper-ceph, userKey: userID, secretKey: userKey}
    osds: {selector: {matchLabels: {application: ceph, component: osd}}, idLabel: osd, failureDomainLabel: rack}
    managePodBudgets: false
    osdMaintenanceTimeout: 1h30m
    pgHealthCheckTimeout: 10m
    announcementTimeout: 0s
    pgHealthyRegex: ^active\+clean$
    toleratedPools: [scratch]
    allowMonQuorumLoss: true`
	require.NoError(t, server.Create(t.Context(), policy(t, "kept", spec)))
	var got v1alpha1.MaintenancePolicy
	require.NoError(t, server.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "kept"}, &got))
	ceph := got.Spec.Ceph
	assert.Equal(t, v1alpha1.CredentialsReference{Name: "lockkeeper-ceph", UserKey: "userID", SecretKey: "userKey"},
		ceph.Connection.Credentials)
	assert.Equal(t, map[string]string{"application": "ceph", "component": "osd"}, ceph.OSDs.Selector.MatchLabels,
		"the default selector must not be mixed in")
	assert.False(t, *ceph.ManagePodBudgets)
	assert.Equal(t, 90*time.Minute, ceph.OSDMaintenanceTimeout.Duration)
	assert.Equal(t, 10*time.Minute, ceph.PGHealthCheckTimeout.Duration)
	assert.Zero(t, ceph.AnnouncementTimeout.Duration)
	assert.Equal(t, `^active\+clean$`, ceph.PGHealthyRegex)
}

// A refusal names the field, and says what is allowed.
func TestBadInputIsRefused(t *testing.T) {
	for _, c := range []struct{ name, spec, field, allowed string }{
		{"no-spec", `{}`, "spec", "exactly one of spec.ceph and spec.longhorn is required"},
		{"two-kinds", `{ceph: {}, longhorn: {}}`, "spec", "exactly one of spec.ceph and spec.longhorn is required"},
		{
			"longhorn-fencing", `{longhorn: {}, fencing: {api: NodeHealthCheck}}`, "spec",
			"spec.fencing.api must be None with spec.longhorn",
		},
		{"longhorn-rest", `{longhorn: {atRest: Two}}`, "spec.longhorn.atRest", `supported values: "One", "None"`},
		{
			"longhorn-turn", `{longhorn: {turnTimeout: 1s}}`, "spec.longhorn.turnTimeout",
			"must be a duration between 10s and 720h, such as 10m",
		},
		{
			"longhorn-taint", `{longhorn: {removalTaintExpiry: 1s}}`, "spec.longhorn.removalTaintExpiry",
			"must be a duration between 1m and 720h, such as 1h",
		},
		{
			"zero-noout", `{ceph: {osdMaintenanceTimeout: 0s}}`, "spec.ceph.osdMaintenanceTimeout",
			"must be a duration between 1s and 720h, such as 30m",
		},
		{
			"negative-noout", `{ceph: {osdMaintenanceTimeout: -5m}}`, "spec.ceph.osdMaintenanceTimeout",
			"must be a duration between 1s and 720h, such as 30m",
		},
		{
			"endless-noout", `{ceph: {osdMaintenanceTimeout: 721h}}`, "spec.ceph.osdMaintenanceTimeout",
			"must be a duration between 1s and 720h, such as 30m",
		},
		{
			"number-for-noout", `{ceph: {osdMaintenanceTimeout: 30}}`, "spec.ceph.osdMaintenanceTimeout",
			"must be of type string",
		},
		{
			"no-unit", `{ceph: {osdMaintenanceTimeout: "30"}}`, "spec.ceph.osdMaintenanceTimeout",
			"must be a duration between 1s and 720h, such as 30m",
		},
		{
			"days", `{ceph: {osdMaintenanceTimeout: 2d}}`, "spec.ceph.osdMaintenanceTimeout",
			"must be a duration between 1s and 720h, such as 30m",
		},
		{
			"negative-pg-timeout", `{ceph: {pgHealthCheckTimeout: -1s}}`, "spec.ceph.pgHealthCheckTimeout",
			"must be a duration between 0s (wait for ever) and 720h",
		},
		{
			"negative-announcement", `{ceph: {announcementTimeout: -1s}}`, "spec.ceph.announcementTimeout",
			"must be a duration between 0s (a cordon opens nothing) and 1h",
		},
		{
			"long-announcement", `{ceph: {announcementTimeout: 2h}}`, "spec.ceph.announcementTimeout",
			"must be a duration between 0s (a cordon opens nothing) and 1h",
		},
		{
			"no-crontab", `{ceph: {restartWindows: [{schedule: nightly, duration: 6h}]}}`, "spec.ceph.restartWindows[0].schedule",
			"five fields of a crontab",
		},
		{
			"short-window", `{ceph: {restartWindows: [{schedule: 0 22 * * *, duration: 1s}]}}`,
			"spec.ceph.restartWindows[0].duration", "between 1m and 168h",
		},
		{"empty-regex", `{ceph: {pgHealthyRegex: ""}}`, "spec.ceph.pgHealthyRegex", "at least 1 chars long"},
		{
			"broken-regex", `{ceph: {pgHealthyRegex: "^active(+clean"}}`, "spec.ceph.pgHealthyRegex",
			"must be a regular expression in RE2 syntax",
		},
		{
			"lookahead", `{ceph: {pgHealthyRegex: "(?!peering)active.*"}}`, "spec.ceph.pgHealthyRegex",
			"must be a regular expression in RE2 syntax",
		},
		{"never-clean", `{ceph: {pgHealthyRegex: "^healthy$"}}`, "spec.ceph.pgHealthyRegex", "that matches \"active+clean\""},
		{"always-clean", `{ceph: {pgHealthyRegex: ".*"}}`, "spec.ceph.pgHealthyRegex", "must not match active+undersized"},
		{"not-anchored", `{ceph: {pgHealthyRegex: "active.clean"}}`, "spec.ceph.pgHealthyRegex", "anchor it with ^ and $"},
		{"all-mons", `{ceph: {daemons: {mon: {}}}}`, "spec.ceph.daemons.mon", "must select by at least one label"},
		{
			"no-secret", `{ceph: {connection: {credentials: {name: ""}}}}`, "spec.ceph.connection.credentials.name",
			"at least 1 chars long",
		},
		{
			"half-a-reference", `{ceph: {connection: {monEndpoints: {name: mons}}}}`, "spec.ceph.connection.monEndpoints.key",
			"Required value",
		},
		{
			"selects-everything", `{ceph: {osds: {selector: {}}}}`, "spec.ceph.osds.selector",
			"must select by at least one label",
		},
		{"no-id-label", `{ceph: {osds: {idLabel: ""}}}`, "spec.ceph.osds.idLabel", "at least 1 chars long"},
		{"pool-twice", `{ceph: {toleratedPools: [a, a]}}`, "spec.ceph.toleratedPools[1]", "Duplicate value"},
		{"word-for-switch", `{ceph: {managePodBudgets: "no"}}`, "spec.ceph.managePodBudgets", "must be of type boolean"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := server.Create(t.Context(), policy(t, c.name, c.spec))
			require.Error(t, err)
			t.Log(err)
			assert.Contains(t, err.Error(), c.field)
			assert.Contains(t, err.Error(), c.allowed)
		})
	}
}

// A misspelt field is worth a refusal to whoever asks for it, as kubectl does.
func TestUnknownFieldsAreRefusedWhenStrict(t *testing.T) {
	err := server.Create(t.Context(), policy(t, "typo", `{ceph: {osdMaintenanceTimout: 10m}}`),
		client.FieldValidation(metav1.FieldValidationStrict))
	require.Error(t, err)
	assert.True(t, strings.Contains(err.Error(), `unknown field "spec.ceph.osdMaintenanceTimout"`), err.Error())
}
