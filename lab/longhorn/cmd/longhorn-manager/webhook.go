package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/longhorn/longhorn-manager/types"
	"github.com/longhorn/longhorn-manager/util/client"
	"github.com/longhorn/longhorn-manager/webhook"
)

const (
	retryPeriod = time.Second
	patience    = time.Second
)

// awaitWebhook returns when a webhook is served on this machine: by this manager, if no other has the port. In that
// case it goes on trying, so that it takes over when the other one ends.
func awaitWebhook(ctx context.Context, kubeconfig string) error {
	served := make(chan error, 1)
	go func() {
		for {
			ours, err := tryServe(ctx, kubeconfig)
			if ours || err != nil || healthy() {
				select {
				case served <- err:
				default:
				}
			}
			if ours {
				return
			}
			select {
			case <-time.After(retryPeriod):
			case <-ctx.Done():
				return
			}
		}
	}()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tryServe serves the webhook until ctx ends, unless somebody else has its port.
func tryServe(ctx context.Context, kubeconfig string) (ours bool, err error) {
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", types.DefaultAdmissionWebhookPort))
	if err != nil {
		return false, nil
	}
	listener.Close() // the server opens it itself
	clients, err := client.NewClients(kubeconfig, true, ctx.Done())
	if err != nil {
		return false, err
	}
	if err := webhook.StartWebhook(ctx, types.WebhookTypeAdmission, clients); err != nil {
		return false, err
	}
	logrus.Info("This manager serves the webhook")
	return true, nil
}

// healthy asks whoever serves the webhook, whose certificate is of its own making.
func healthy() bool {
	client := http.Client{
		Timeout:   patience,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
	answer, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/v1/healthz", types.DefaultAdmissionWebhookPort))
	if err != nil {
		return false
	}
	answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}
