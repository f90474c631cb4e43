package api

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/starter"
)

// TestTheWatcherStandsAgain: one that has lost the Lease does not end, and watches as before when it has it again.
func TestTheWatcherStandsAgain(t *testing.T) {
	t.Parallel()
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "elected"}})
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	health := free.Addr().String()
	require.NoError(t, free.Close())
	temporal := &told{}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	const thief = "thief"
	go func() {
		ended <- starter.Run(ctx, config, temporal, starter.Options{
			Namespace: "elected", LeaderElection: true, LeaderElectionNamespace: "elected", HealthAddress: health,
			Log: logr.Discard(),
		})
	}()
	defer func() {
		stop()
		require.NoError(t, <-ended)
	}()
	var lease *coordinationv1.Lease
	holder := func() string {
		lease = &coordinationv1.Lease{}
		err := server.Get(t.Context(), client.ObjectKey{Namespace: "elected", Name: starter.LeaseName}, lease)
		if err != nil || lease.Spec.HolderIdentity == nil {
			return ""
		}
		return *lease.Spec.HolderIdentity
	}
	require.Eventually(t, func() bool { return holder() != "" }, 20*time.Second, 50*time.Millisecond)
	first := holder()
	require.Eventually(t, func() bool {
		holder()
		thief, longer, now := thief, int32(8), metav1.NowMicro() // than the leader tries to renew
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &thief, &longer, &now
		return server.Update(t.Context(), lease) == nil
	}, 10*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool { now := holder(); return now != "" && now != thief && now != first }, time.Minute,
		50*time.Millisecond)

	u := cephOSD(t, "osds", `{storage: [{hosts: [a], osds: [{data: /dev/sdb}]}]}`)
	u.SetNamespace("elected")
	create(t, u)
	require.Eventually(t, func() bool { return len(temporal.all()) > 0 }, 30*time.Second, 20*time.Millisecond)
	require.Empty(t, ended)
}
