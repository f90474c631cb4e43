// Command longhorn-manager is Longhorn's manager on a machine that stands for several nodes. It starts what
// `longhorn-manager daemon` starts, from the same packages, with one difference: the admission webhook, which listens
// on all addresses of the machine, is served by one manager at a time.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/gorilla/handlers"
	"github.com/rancher/wrangler/v3/pkg/signals"
	"github.com/sirupsen/logrus"
	"github.com/urfave/cli"

	"github.com/longhorn/longhorn-manager/api"
	"github.com/longhorn/longhorn-manager/app"
	"github.com/longhorn/longhorn-manager/controller"
	"github.com/longhorn/longhorn-manager/datastore"
	"github.com/longhorn/longhorn-manager/manager"
	"github.com/longhorn/longhorn-manager/meta"
	"github.com/longhorn/longhorn-manager/types"
	"github.com/longhorn/longhorn-manager/upgrade"
	"github.com/longhorn/longhorn-manager/util"
	"github.com/longhorn/longhorn-manager/util/client"
)

func main() {
	logrus.SetFormatter(&logrus.TextFormatter{TimestampFormat: time.RFC3339Nano, FullTimestamp: true})
	daemon := app.DaemonCmd() // for its flags
	daemon.Action = func(c *cli.Context) error { return run(c) }
	program := cli.NewApp()
	program.Version = meta.Version
	program.Flags = []cli.Flag{cli.BoolFlag{Name: "debug, d"}}
	program.Before = func(c *cli.Context) error {
		if c.GlobalBool("debug") {
			logrus.SetLevel(logrus.DebugLevel)
		}
		return nil
	}
	program.Commands = []cli.Command{daemon}
	if err := program.Run(os.Args); err != nil {
		logrus.Fatalf("Error starting manager: %v", err)
	}
}

func run(c *cli.Context) error {
	node, err := util.GetRequiredEnv(types.EnvNodeName)
	if err != nil {
		return err
	}
	address, err := util.GetRequiredEnv(types.EnvPodIP)
	if err != nil {
		return err
	}
	ctx := signals.SetupSignalContext()
	kubeconfig := c.String(app.FlagKubeConfig)
	if err := awaitWebhook(ctx, kubeconfig); err != nil {
		return err
	}
	clients, err := client.NewClients(kubeconfig, true, ctx.Done())
	if err != nil {
		return err
	}
	if err := upgrade.Upgrade(kubeconfig, node, c.String(app.FlagManagerImage), false); err != nil {
		return err
	}
	log := logrus.StandardLogger().WithField("node", node)
	proxies := util.NewAtomicCounter()
	websockets, err := controller.StartControllers(log, clients, node, c.String(app.FlagServiceAccount),
		c.String(app.FlagManagerImage), c.String(app.FlagBackingImageManagerImage), c.String(app.FlagShareManagerImage),
		kubeconfig, meta.Version, proxies)
	if err != nil {
		return err
	}
	volumes := manager.NewVolumeManager(node, clients.Datastore, proxies)
	if err := introduce(c, clients.Datastore, volumes, node); err != nil {
		return err
	}
	server := http.Server{
		Addr:              types.GetAPIServerAddressFromIP(address),
		Handler:           handlers.ProxyHeaders(api.NewRouter(api.NewServer(volumes, websockets))),
		ReadHeaderTimeout: time.Minute,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	log.Info("The manager serves its API")
	select {
	case err := <-failed:
		return fmt.Errorf("API: %w", err)
	case <-ctx.Done():
		return server.Shutdown(context.Background())
	}
}

// introduce writes down what a new manager brings: images, backup target, its node, and the engine image.
func introduce(c *cli.Context, store *datastore.DataStore, volumes *manager.VolumeManager, node string) error {
	if err := store.UpdateCustomizedSettings(map[types.SettingName]string{
		types.SettingNameDefaultEngineImage:              c.String(app.FlagEngineImage),
		types.SettingNameDefaultInstanceManagerImage:     c.String(app.FlagInstanceManagerImage),
		types.SettingNameDefaultBackingImageManagerImage: c.String(app.FlagBackingImageManagerImage),
		types.SettingNameSupportBundleManagerImage:       c.String(app.FlagSupportBundleManagerImage),
	}); err != nil {
		return err
	}
	if err := store.CreateOrUpdateDefaultBackupTarget(); err != nil {
		return err
	}
	if _, err := store.GetNode(node); datastore.ErrorIsNotFound(err) {
		if _, err := store.CreateDefaultNode(node); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	return volumes.DeployEngineImage(c.String(app.FlagEngineImage))
}
