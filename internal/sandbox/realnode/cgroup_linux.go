package realnode

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/util/wait"
)

// hierarchies returns the roots of the control groups: one of version 2, or one for each controller of version 1.
func hierarchies() ([]string, error) {
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return []string{root}, nil
	}
	entries, err := os.ReadDir(root)
	var roots []string
	for _, entry := range entries {
		if entry.IsDir() { // the others are links to these
			roots = append(roots, filepath.Join(root, entry.Name()))
		}
	}
	return roots, err
}

// createControlGroup creates a control group in each hierarchy, with all controllers.
func createControlGroup(name string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		parent := root
		for _, part := range strings.Split(name, "/") {
			if err := enableControllers(parent); err != nil {
				return err
			}
			group := filepath.Join(parent, part)
			if err := os.MkdirAll(group, 0o755); err != nil {
				return err
			}
			if err := copyCPUSet(parent, group); err != nil {
				return err
			}
			parent = group
		}
	}
	return nil
}

// enableControllers enables the controllers of a group of version 2 for its children.
func enableControllers(group string) error {
	available, err := os.ReadFile(filepath.Join(group, "cgroup.controllers"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // version 1
	}
	if err != nil {
		return err
	}
	for _, controller := range strings.Fields(string(available)) {
		// The kernel refuses controllers that are in use elsewhere; the kubelet reports those that it needs.
		_ = os.WriteFile(filepath.Join(group, "cgroup.subtree_control"), []byte("+"+controller), 0o600)
	}
	return nil
}

// copyCPUSet copies the processors of its parent to a group of version 1: a new group has none, and accepts no
// process.
func copyCPUSet(parent, group string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		if _, err := os.Stat(filepath.Join(group, "cgroup.controllers")); err == nil {
			return nil
		}
		value, err := os.ReadFile(filepath.Join(parent, file))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(group, file), value, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// removeControlGroup kills all processes of a control group, and removes it.
func removeControlGroup(name string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	var last error // the kernel removes a killed process from its group after a moment
	_ = wait.ExponentialBackoff(exitBackoff, func() (bool, error) {
		var errs []error
		for _, root := range roots {
			errs = append(errs, removeGroup(filepath.Join(root, name)))
		}
		last = errors.Join(errs...)
		return last == nil, nil
	})
	return last
}

// removeGroup tries once to remove a group, after the groups below it.
func removeGroup(group string) error {
	entries, err := os.ReadDir(group)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, entry := range entries {
		if entry.IsDir() {
			errs = append(errs, removeGroup(filepath.Join(group, entry.Name())))
		}
	}
	processes, _ := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	for _, field := range strings.Fields(string(processes)) {
		if pid, err := strconv.Atoi(field); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL) // fails if the process has just exited
		}
	}
	if err := os.Remove(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
