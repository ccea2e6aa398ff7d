package demo

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"chainmail/cmd/cluster/config"
	"chainmail/integration/load"
)

// Verdict is the end of the demo.
type Verdict struct {
	Verdict string   `json:"verdict"` // pass or fail
	Members []string `json:"members"` // at the end
	load.Report
	Imported int            `json:"imported_rows"`
	Pause    load.Pauses    `json:"pause_ms"` // longest request of each key in a planned change
	Changes  []ChangeResult `json:"changes"`
	Seconds  float64        `json:"seconds"`
}

// ChangeResult is one change of the members, or a restart.
type ChangeResult struct {
	ID      string  `json:"id"`
	Kind    string  `json:"kind"`
	Outcome string  `json:"outcome"`
	Seconds float64 `json:"seconds"`
	Keys    uint64  `json:"keys_moved"`
	Bytes   uint64  `json:"bytes_moved"`
}

// judge says pass if nothing was lost, read wrongly or left unanswered, and every row was found as it was imported.
func (v *Verdict) judge(rows int) {
	v.Verdict = "fail"
	if v.Lost == 0 && v.WrongReads == 0 && v.Unanswered == 0 && v.Imported == rows && v.Verified == rows && v.Acknowledged > 0 {
		v.Verdict = "pass"
	}
}

// Pass says whether nothing was lost.
func (v *Verdict) Pass() bool { return v.Verdict == "pass" }

// Table writes the verdict for people.
func (v *Verdict) Table(w io.Writer) {
	fmt.Fprintf(w, "verdict\t%s\n", strings.ToUpper(v.Verdict))
	fmt.Fprintf(w, "acknowledged writes\t%d\n", v.Acknowledged)
	fmt.Fprintf(w, "lost\t%d\n", v.Lost)
	fmt.Fprintf(w, "reads\t%d\n", v.Reads)
	fmt.Fprintf(w, "wrong reads\t%d\n", v.WrongReads)
	fmt.Fprintf(w, "unanswered\t%d\n", v.Unanswered)
	errs := "none"
	if len(v.Errors) > 0 {
		var parts []string
		for _, code := range slices.Sorted(maps.Keys(v.Errors)) {
			parts = append(parts, fmt.Sprintf("%d %s", v.Errors[code], code))
		}
		errs = strings.Join(parts, ", ") + " (members were killed)"
	}
	fmt.Fprintf(w, "errors\t%s\n", errs)
	fmt.Fprintf(w, "imported rows\t%d, verified %d\n", v.Imported, v.Verified)
	fmt.Fprintf(w, "longest pause of a key in a planned change\tp50 %.1f ms, p99 %.1f ms, max %.1f ms\n", v.Pause.P50, v.Pause.P99, v.Pause.Max)
	fmt.Fprintf(w, "members at the end\t%s\n", strings.Join(v.Members, " "))
	fmt.Fprintf(w, "seconds\t%.1f\n\n", v.Seconds)
	fmt.Fprintln(w, "CHANGE\tKIND\tOUTCOME\tSECONDS\tKEYS MOVED\tBYTES MOVED")
	for _, c := range v.Changes {
		id := c.ID
		if id == "" {
			id = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%.1f\t%d\t%s\n", id, c.Kind, c.Outcome, c.Seconds, c.Keys, config.FormatSize(int64(c.Bytes)))
	}
	for _, x := range v.Examples {
		fmt.Fprintf(w, "seen\t%s\n", x)
	}
}
