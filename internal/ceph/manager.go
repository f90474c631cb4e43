package ceph

import "context"

// Manager is which manager is active. Epoch, of the map of managers, changes with every change of it, so that a manager
// that was restarted under the same name is told apart.
type Manager struct {
	Epoch     int64  `json:"epoch"`
	Available bool   `json:"available"`
	Name      string `json:"active_name"`
}

// Manager asks the monitors which manager is active.
func (c Client) Manager(ctx context.Context) (Manager, error) {
	var m Manager
	err := c.run(ctx, mgrStatCommand(), &m)
	return m, err
}
