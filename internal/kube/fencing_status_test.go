package kube_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// TestFencingInForce: a policy that names another API goes on with the one before, as long as a node is to be fenced
// that is held so.
func TestFencingInForce(t *testing.T) {
	is := v1alpha1.FencingSpec{API: v1alpha1.FencingOpenShift, Namespace: "machines"}
	wanted := v1alpha1.FencingSpec{API: v1alpha1.FencingClusterAPI, Namespace: "capi", Hold: v1alpha1.FencingHoldHooks}
	for _, test := range []struct {
		what   string
		spec   v1alpha1.FencingSpec
		stages []string
		marked []string
		want   v1alpha1.FencingSpec
	}{
		{"no node is to be fenced", wanted, nil, []string{"a"}, wanted},
		{"one is held", wanted, []string{"Healing", "Held"}, []string{"a"}, is},
		{"one is released", wanted, []string{"Released"}, []string{"a"}, is},
		{"one was fenced", wanted, []string{"Healing"}, []string{"a"}, wanted},
		{"nothing is held", wanted, []string{"Held"}, nil, wanted},
		{
			"nothing is to be held",
			v1alpha1.FencingSpec{API: v1alpha1.FencingNone},
			[]string{"Held"},
			[]string{"a"},
			v1alpha1.FencingSpec{API: v1alpha1.FencingNone},
		},
	} {
		t.Run(test.what, func(t *testing.T) {
			p := &v1alpha1.MaintenancePolicy{Spec: v1alpha1.MaintenancePolicySpec{Fencing: test.spec}}
			p.Status.Fencing = &v1alpha1.FencingStatus{API: string(is.API), Namespace: is.Namespace, Marked: test.marked}
			for i, stage := range test.stages {
				p.Status.Fencing.Nodes = append(p.Status.Fencing.Nodes, v1alpha1.FencingNode{
					Node: string(rune('a' + i)), Stage: stage,
				})
			}
			require.Equal(t, test.want, kube.FencingInForce(p))
		})
	}
}
