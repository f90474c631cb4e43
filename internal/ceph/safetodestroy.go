package ceph

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// SafeToDestroy asks of each of these OSDs whether it holds no data that is needed: all of it has its copies elsewhere.
// Those of which that is true may all go together, since none of them has any. With JSON the command succeeds whatever
// it finds, so the lists in its answer are what counts. As with OKToStop the manager answers.
func (c Client) SafeToDestroy(ctx context.Context, osds []int) (map[int]storage.Answer, error) {
	answers := make(map[int]storage.Answer, len(osds))
	if len(osds) == 0 {
		return answers, nil
	}
	command := safeToDestroyCommand{Prefix: "osd safe-to-destroy", Format: "json"}
	for _, id := range osds {
		command.IDs = append(command.IDs, strconv.Itoa(id))
	}
	output, err := c.send(ctx, command)
	switch {
	case IsBusy(err), IsAgain(err):
		for _, id := range osds {
			answers[id] = storage.Answer{Reason: err.Error()}
		}
		return answers, nil
	case err != nil:
		return nil, err
	}
	var report safeToDestroyReport
	if err := decode(command, output, &report); err != nil {
		return nil, err
	}
	for _, id := range osds {
		reason := report.reason(id)
		answers[id] = storage.Answer{OK: reason == "", Reason: reason}
	}
	return answers, nil
}

// safeToDestroyReport is the answer to "osd safe-to-destroy": in which of the lists an OSD is.
type safeToDestroyReport struct {
	Safe   []int `json:"safe_to_destroy"`
	Active []int `json:"active"`
	Stored []int `json:"stored_pgs"`
}

// reason says why an OSD is not safe to destroy; "" if it is.
func (r safeToDestroyReport) reason(id int) string {
	switch {
	case slices.Contains(r.Safe, id):
		return ""
	case slices.Contains(r.Active, id):
		return fmt.Sprintf("%s serves placement groups", OSDName(id))
	case slices.Contains(r.Stored, id):
		return fmt.Sprintf("%s stores placement groups", OSDName(id))
	default:
		return fmt.Sprintf("whether %s stores placement groups is not known", OSDName(id))
	}
}
