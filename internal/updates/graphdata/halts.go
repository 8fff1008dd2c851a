package graphdata

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
)

// AppendHalt appends a line to the halts of a folder. The line is JSON, which is YAML as well.
func AppendHalt(folder string, halt Halt) (err error) {
	file, err := os.OpenFile(filepath.Join(folder, HaltsFile), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	text, err := json.Marshal(halt)
	if err != nil {
		return err
	}
	line := append([]byte("- "), append(text, '\n')...)
	last := make([]byte, 1)
	if info, err := file.Stat(); err != nil {
		return err
	} else if info.Size() > 0 {
		if _, err := file.ReadAt(last, info.Size()-1); err != nil {
			return err
		}
		if last[0] != '\n' { // a person has edited it
			line = append([]byte("\n"), line...)
		}
	}
	if _, err := file.Write(line); err != nil { // in one piece, so that a reader never sees a part
		return err
	}
	return file.Sync()
}
