// Package service serves the update graphs of a folder, and takes the reports of clusters. It judges the reports, and
// halts an update that fails, in a line of halts.yaml.
//
// Answers are made when something changes, and only copied for a client. The service has no state but the folder and
// the log of reports: after a restart it goes on from there. It decides neither when a cluster may update nor when an
// update halts: packages phase and halt do.
//
// Start with New, then Service.Serve. Judge is for graphs that are built without a service.
package service

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/runlevel/runlevel/internal/text/printable"
	"github.com/runlevel/runlevel/internal/updates/graphdata"
	"github.com/runlevel/runlevel/internal/updates/halt"
	"github.com/runlevel/runlevel/internal/updates/report"
)

// Options are those of a service.
type Options struct {
	Folder  string        // with the graph data
	State   string        // folder in which halts are written; empty for Folder
	Reports string        // log of reports; empty for a service that takes none
	Token   string        // that reports need; empty for none
	MaxAge  time.Duration // for which caches may keep a graph: it delays a halt
	Log     func(line string)
	Now     func() time.Time
}

// A Service serves update graphs.
type Service struct {
	options Options
	answers atomic.Pointer[answers]
	counts  counts

	mu       sync.Mutex // for the fields below
	data     *graphdata.Data
	versions map[string]bool // that clusters may report
	tallies  tallies
	policies string // that the tallies are for
	unsaved  []graphdata.Halt
	log      *report.Log
	built    string // state that the answers were built from

	looked, touched time.Time // at the folder, the log
	stamp           string    // of the folder, as last read
	readError       error
	noted           sync.Map // problems that are in the output, by topic
}

const (
	lookInterval  = 3 * time.Second
	touchInterval = 10 * time.Second
)

// New reads the folder and the log.
func New(o Options) (*Service, error) {
	o.State = cmp.Or(o.State, o.Folder)
	s := &Service{options: o}
	if err := s.read(); err != nil {
		return nil, err
	}
	if o.Reports != "" {
		if err := s.openLog(); err != nil {
			return nil, err
		}
	}
	return s, s.Update()
}

func (s *Service) openLog() error {
	log, skipped, err := report.Open(s.options.Reports, s.tallies.add)
	if err != nil {
		return err
	}
	s.log = log
	for _, line := range skipped {
		s.options.Log(line)
	}
	last := log.Touched()
	if last.IsZero() {
		return nil
	}
	started := report.Entry{Received: s.options.Now(), AwaySince: last}
	s.tallies.add(started)
	_, err = log.Append(started)
	return err
}

// tallies are those of the phases.
type tallies []*halt.Tally

func (t tallies) add(e report.Entry) {
	for _, tally := range t {
		tally.Add(e)
	}
}

// Update brings the answers up to date: it reads the folder if it has changed, judges the reports, and builds the
// graphs if something in them has changed. A folder with an error leaves them as they are.
func (s *Service) Update() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.options.Now()
	if now.Sub(s.looked) >= lookInterval {
		s.looked = now
		s.note("folder", s.read())
	}
	if s.log != nil && now.Sub(s.touched) >= touchInterval {
		s.touched = now
		s.note("log", s.log.Touch(now))
	}
	for _, h := range judge(s.data, s.tallies, now) {
		s.options.Log(fmt.Sprintf("halted %s: %s", h.To, h.Reason))
		s.counts.halts.Add(1)
		s.data.Halts = append(s.data.Halts, h)
		s.unsaved = append(s.unsaved, h)
	}
	s.note("halts", s.save())
	state, err := json.Marshal([]any{s.stamp, s.data.Halts, offers(s.data, now)})
	if err != nil || string(state) == s.built {
		return err
	}
	built, err := build(s.data, now)
	if err != nil {
		return err
	}
	s.answers.Store(built)
	s.built = string(state)
	return nil
}

// note logs a problem when it begins and when it ends.
func (s *Service) note(topic string, err error) {
	text := ""
	if err != nil {
		text = printable.Line(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if last, _ := s.noted.Swap(topic, text); last != text && (last != nil || text != "") {
		s.options.Log(topic + ": " + cmp.Or(text, "works again"))
	}
}

// read reads the folder if a file in it has changed.
func (s *Service) read() error {
	stamp, err := s.stampOfFolder()
	if err != nil || stamp == s.stamp {
		return errors.Join(err, s.readError)
	}
	s.stamp = stamp
	s.readError = s.readFolder()
	return s.readError
}

func (s *Service) readFolder() error {
	data, err := graphdata.Read(os.DirFS(s.options.Folder))
	if err != nil {
		return err
	}
	if s.options.State != s.options.Folder {
		more, err := graphdata.ReadHalts(os.DirFS(s.options.State))
		if err != nil {
			return err
		}
		data.Halts = append(data.Halts, more...)
		slices.SortStableFunc(data.Halts, func(a, b graphdata.Halt) int { return a.At.Compare(b.At.Time) })
	}
	data.Halts = append(data.Halts, s.unsaved...)
	versions := map[string]bool{}
	for _, release := range data.Releases {
		versions[release.Version] = true
	}
	policies, err := json.Marshal(data.Phases)
	if err != nil {
		return err
	}
	all := s.tallies
	if string(policies) != s.policies {
		all = newTallies(data)
		for i := range data.Phases {
			if data.Phases[i].After.Successes > 0 && s.options.Token == "" {
				s.options.Log(data.Phases[i].File + ": its ramps never begin: after counts only reports with a " +
					"token, and no --report-token-file is set")
			}
		}
		if s.log != nil {
			if _, err := report.Read(s.options.Reports, all.add); err != nil {
				return err
			}
		}
	}
	link(data, all, s.options.Now)
	s.data, s.versions, s.tallies, s.policies = data, versions, all, string(policies)
	return nil
}

func newTallies(data *graphdata.Data) (all tallies) {
	for i := range data.Phases {
		all = append(all, halt.NewTally(data.Phases[i].Judged()))
	}
	return all
}

// link lets the tallies decide when the phases begin.
func link(data *graphdata.Data, all tallies, now func() time.Time) {
	for i, t := range all {
		data.Phases[i].Begin = func(start time.Time) time.Time { return t.Begin(start, now()) }
	}
}

// offers returns the phases as clients get them, and which are open for all.
func offers(data *graphdata.Data, now time.Time) []any {
	var all []any
	for i := range data.Phases {
		offer := data.Phases[i].Offer()
		all = append(all, offer, offer.IsOpenForAll(now))
	}
	return all
}

// stampOfFolder returns a text that differs if a file with graph data has changed.
func (s *Service) stampOfFolder() (string, error) {
	hash := fnv.New128a()
	add := func(path string) {
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			fmt.Fprintln(hash, path, info.Size(), info.ModTime().UnixNano())
		}
	}
	err := filepath.WalkDir(s.options.Folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != s.options.Folder:
			return filepath.SkipDir // such as .git
		case filepath.Clean(path) != filepath.Clean(s.options.Reports):
			add(path)
		}
		return nil
	})
	add(filepath.Join(s.options.State, graphdata.HaltsFile))
	return fmt.Sprintf("%x", hash.Sum(nil)), err
}

// save writes the halts that are not in the folder yet.
func (s *Service) save() error {
	for len(s.unsaved) > 0 {
		if err := graphdata.AppendHalt(s.options.State, s.unsaved[0]); err != nil {
			return err
		}
		s.unsaved = s.unsaved[1:]
	}
	return nil
}

// judge returns the updates that halt now.
func judge(data *graphdata.Data, all tallies, now time.Time) []graphdata.Halt {
	var halts []graphdata.Halt
	halted := data.Halted()
	for i, t := range all {
		p := &data.Phases[i]
		if _, isHalted := halted[p.To]; isHalted {
			continue
		}
		reason := t.Halt(data.Resumed(p.To), now)
		if reason != "" {
			h := graphdata.Halt{To: p.To, At: metav1.NewTime(now), Reason: printable.Line(reason)}
			halts = append(halts, h)
			halted[p.To] = h
		}
	}
	return halts
}

// Judge judges the log of a service for graphs that are built from the same folder: it lets ramps begin, and adds halts
// to the data. It returns the halts that the folder does not have, and the lines of the log that are not reports.
func Judge(data *graphdata.Data, log string, now time.Time) (halts []graphdata.Halt, skipped []string, err error) {
	all := newTallies(data)
	if skipped, err = report.Read(log, all.add); err != nil {
		return nil, skipped, err
	}
	link(data, all, func() time.Time { return now })
	halts = judge(data, all, now)
	data.Halts = append(data.Halts, halts...)
	return halts, skipped, nil
}
