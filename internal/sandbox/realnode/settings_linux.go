package realnode

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// settings are the kernel settings of this machine that a kubelet changes.
var settings = []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"}

const settingsFile = "settings.json"

// saveSettings writes this machine's settings into the folder. If other sets run, their kubelets have changed the
// settings, so saveSettings copies the settings that another set has saved.
func saveSettings(folder string) error {
	values := map[string]string{}
	for _, name := range settings {
		value, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if err != nil {
			return err
		}
		values[name] = strings.TrimSpace(string(value))
	}
	others, err := otherSets(folder)
	if err != nil {
		return err
	}
	for _, other := range others {
		if text, err := os.ReadFile(filepath.Join(other, settingsFile)); err == nil &&
			json.Unmarshal(text, &values) == nil {
			break
		}
	}
	text, err := json.Marshal(values)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, settingsFile), text, 0o600)
}

// restoreSettings restores the saved settings, unless other sets run.
func restoreSettings(folder string) error {
	text, err := os.ReadFile(filepath.Join(folder, settingsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	saved := map[string]string{}
	if err == nil {
		err = json.Unmarshal(text, &saved)
	}
	if err != nil {
		return err
	}
	others, err := otherSets(folder)
	if err != nil || len(others) > 0 {
		return err
	}
	var errs []error
	for name, value := range saved {
		file := filepath.Join("/proc/sys", name)
		if current, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(current)) != value {
			errs = append(errs, os.WriteFile(file, []byte(value), 0o600))
		}
	}
	return errors.Join(errs...)
}

// otherSets returns the folders of the nodes of other sandboxes.
func otherSets(folder string) ([]string, error) {
	pattern := filepath.Join(filepath.Dir(filepath.Dir(folder)), "*", filepath.Base(folder))
	others, err := filepath.Glob(pattern)
	return slices.DeleteFunc(others, func(other string) bool {
		_, err := os.Stat(filepath.Join(other, settingsFile))
		return other == folder || err != nil
	}), err
}
