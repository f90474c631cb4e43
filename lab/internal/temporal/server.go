// Package temporal describes Temporal's dev server, the real one with its UI, as a child process of the lab.
package temporal

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/lockkeeper/lockkeeper/lab/internal/child"
	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
)

// Namespace is the one that the dev server always has.
const Namespace = "default"

// Address is what TEMPORAL_ADDRESS should be.
func Address(inst instance.Instance) string { return instance.Loopback(inst.Ports.TemporalFrontend()) }

// UI is the address of the web interface.
func UI(inst instance.Instance) string {
	return "http://" + instance.Loopback(inst.Ports.TemporalUI())
}

// Child describes the server. Its database is in the instance's folder: with a write-ahead log it survives SIGKILL, and
// is three times as fast as without.
func Child(inst instance.Instance, binary string) child.Spec {
	return child.Spec{
		Name: "temporal",
		Path: binary,
		Args: append([]string{
			"server", "start-dev",
			"--ip", "127.0.0.1",
			"--port", strconv.Itoa(inst.Ports.TemporalFrontend()),
			"--ui-port", strconv.Itoa(inst.Ports.TemporalUI()),
			"--metrics-port", strconv.Itoa(inst.Ports.TemporalMetrics()),
			"--http-port", strconv.Itoa(inst.Ports.TemporalInternal()),
			"--db-filename", inst.Path("temporal.db"),
			"--sqlite-pragma", "journal_mode=WAL",
			"--sqlite-pragma", "synchronous=NORMAL",
			"--log-format", "json",
			// The user's profile means another server.
			"--disable-config-env", "--disable-config-file",
		}, dynamicConfig()...),
		Log: inst.Log("temporal"),
	}
}

// dynamicConfig takes out the pauses that pay off with many shards and a busy database: with them a task waits up to 50
// ms for its turn, a timer up to a second.
func dynamicConfig() []string {
	var args []string
	for _, kv := range []string{
		"history.transferProcessorMaxPollRPS=2000",
		"history.timerProcessorMaxPollRPS=2000",
		"history.visibilityProcessorMaxPollRPS=200",
		`history.timerProcessorMaxTimeShift="1ms"`,
		// One partition: a task never waits on one while the only poller is on another.
		"matching.numTaskqueueReadPartitions=1",
		"matching.numTaskqueueWritePartitions=1",
	} {
		args = append(args, "--dynamic-config-value", kv)
	}
	return args
}

// frontendService is the name under which the server answers health checks.
const frontendService = "temporal.api.workflowservice.v1.WorkflowService"

// WaitReady waits until the server serves workflows, and says what it waits for where that takes long. It ends with
// ctx.
func WaitReady(ctx context.Context, inst instance.Instance, progress func(string)) error {
	conn, err := grpc.NewClient(Address(inst), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	client := grpc_health_v1.NewHealthClient(conn)
	still := instance.Awaiting("Temporal", progress)
	for {
		answer, err := check(ctx, client)
		if err == nil {
			if answer == grpc_health_v1.HealthCheckResponse_SERVING {
				return nil
			}
			err = fmt.Errorf("it says %s", answer)
		}
		still(err)
		// gRPC's own patience between two connections grows with every refused one.
		conn.ResetConnectBackoff()
		select {
		case <-ctx.Done():
			return fmt.Errorf("Temporal at %s does not serve: %w (log: %s)", Address(inst), err, inst.Log("temporal"))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func check(
	ctx context.Context, client grpc_health_v1.HealthClient,
) (grpc_health_v1.HealthCheckResponse_ServingStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	answer, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: frontendService})
	return answer.GetStatus(), err
}
