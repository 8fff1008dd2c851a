package review

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/runlevel/runlevel/internal/cli/core"
	"github.com/runlevel/runlevel/internal/objects/kinds"
	"github.com/runlevel/runlevel/internal/review/plan/show"
	"github.com/runlevel/runlevel/internal/text/printable"
)

// A tombstoneFile is a new file with the tombstones of objects that one file of the old release defined.
type tombstoneFile struct {
	count int
	text  strings.Builder
}

// writeTombstones writes the tombstones of a plan to new files of a folder. If one write fails, all files are deleted.
func writeTombstones(folder string, view show.Printer, progress io.Writer) error {
	files := map[string]*tombstoneFile{}
	for _, object := range view.Plan.Absent {
		if object.Tombstone == "" || object.CoveredBy != nil {
			continue
		}
		if content := kinds.DataLostOnDelete(object.ID.GroupKind()); content != "" {
			fmt.Fprintln(progress,
				printable.Line(fmt.Sprintf("not written: a tombstone of %s would delete %s: copy it from the plan if "+
					"this is intended", object.ID, content)))
			continue
		}
		old := object.Old.File
		if view.PathOf != nil {
			old = view.PathOf(old)
		}
		name, err := tombstoneName(folder, path.Base(old))
		if err != nil {
			return err
		}
		if files[name] == nil {
			files[name] = &tombstoneFile{}
		} else if path.Ext(name) != ".json" { // documents in JSON need no separator
			files[name].text.WriteString("---\n")
		}
		files[name].count++
		files[name].text.WriteString(object.Tombstone)
	}
	return writeTombstoneFiles(files, progress)
}

// tombstoneName returns the file for tombstones. It has the name of the file of the objects or, if that file still
// exists, a name that is sorted after it.
func tombstoneName(folder, old string) (string, error) {
	extension := path.Ext(old)
	beside := strings.TrimSuffix(old, extension) + "_tombstones" + extension
	for _, name := range []string{old, beside} {
		name = filepath.Join(folder, name)
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			return name, nil
		} else if err != nil {
			return "", err
		}
	}
	return "", core.Misusef("%s has files %s and %s already: move the latter, or name another folder", folder, old,
		beside)
}

// writeTombstoneFiles writes new files, and removes them again if one can't be written.
func writeTombstoneFiles(files map[string]*tombstoneFile, progress io.Writer) error {
	names := slices.Sorted(maps.Keys(files))
	for i, name := range names {
		err := core.WriteNew(name, []byte(files[name].text.String()))
		if err == nil {
			continue
		}
		unfinished := names[:i]
		if !errors.Is(err, fs.ErrExist) {
			unfinished = names[:i+1]
		}
		for _, name := range unfinished {
			_ = os.Remove(name) // the last one may not exist
		}
		return err
	}
	for _, name := range names {
		fmt.Fprintln(progress,
			printable.Line(fmt.Sprintf("wrote %s to %s", printable.Count(files[name].count, "tombstone"), name)))
	}
	if len(names) == 0 {
		fmt.Fprintln(progress, "no tombstones to write")
	}
	return nil
}

// checkTombstonesFlag returns an error if the folder does not exist.
func (f *planFlags) checkTombstonesFlag() error {
	if f.tombstones == "" {
		return nil
	}
	if info, err := os.Stat(f.tombstones); err != nil || !info.IsDir() {
		return core.Misusef("--write-tombstones %s: name an existing folder", printable.Line(f.tombstones))
	}
	return nil
}
