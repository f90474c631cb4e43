package ceph

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// SafeToDestroy asks whether these OSDs hold no data that is needed: all of it has its copies elsewhere. With JSON the
// command succeeds whatever it finds, so the list in its answer is what counts. As with OKToStop the manager answers.
func (c Client) SafeToDestroy(ctx context.Context, osds []int) (storage.Answer, error) {
	command := safeToDestroyCommand{Prefix: "osd safe-to-destroy", Format: "json"}
	for _, id := range osds {
		command.IDs = append(command.IDs, strconv.Itoa(id))
	}
	output, err := c.send(ctx, command)
	switch {
	case IsBusy(err), IsAgain(err):
		return storage.Answer{Reason: err.Error()}, nil
	case err != nil:
		return storage.Answer{}, err
	}
	var report struct {
		Safe    []int `json:"safe_to_destroy"`
		Active  []int `json:"active"`
		Missing []int `json:"missing_stats"`
		Stored  []int `json:"stored_pgs"`
	}
	if err := decode(command, output, &report); err != nil {
		return storage.Answer{}, err
	}
	for _, id := range osds {
		switch {
		case slices.Contains(report.Safe, id):
		case slices.Contains(report.Active, id):
			return storage.Answer{Reason: fmt.Sprintf("%s serves placement groups", OSDName(id))}, nil
		case slices.Contains(report.Stored, id):
			return storage.Answer{Reason: fmt.Sprintf("%s stores placement groups", OSDName(id))}, nil
		default:
			return storage.Answer{Reason: fmt.Sprintf("whether %s stores placement groups is not known", OSDName(id))}, nil
		}
	}
	return storage.Answer{OK: true}, nil
}
