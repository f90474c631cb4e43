// Command grpc_health_probe asks a gRPC service whether it is well. Longhorn's instance managers call it for each of
// their processes: without an answer a process counts as starting, and is stopped after a minute.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

func main() {
	address := flag.String("addr", "", "host:port of the service")
	flag.Parse()
	if err := probe(*address); err != nil {
		fmt.Fprintln(os.Stderr, "grpc_health_probe:", err)
		os.Exit(1)
	}
}

const patience = time.Second

func probe(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	answer, err := grpc_health_v1.NewHealthClient(connection).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		return err
	}
	if answer.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("%s: %s", address, answer.Status)
	}
	return nil
}
