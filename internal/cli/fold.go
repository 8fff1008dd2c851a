package cli

// mostAlike is the most items with the same cause that are printed one by one.
const mostAlike = 3

// A fold is an item that is printed, and the others with the same cause, which are only counted.
type fold[T any] struct {
	first  T
	others []T
}

// folded groups items for printing: if more than mostAlike have the same cause, the first of them is printed for all.
func folded[T any](all []T, cause func(T) string) []fold[T] {
	count := map[string]int{}
	for _, item := range all {
		count[cause(item)]++
	}
	var folds []fold[T]
	places := map[string]int{}
	for _, item := range all {
		key := cause(item)
		if at, isKnown := places[key]; isKnown && count[key] > mostAlike {
			folds[at].others = append(folds[at].others, item)
			continue
		}
		places[key] = len(folds)
		folds = append(folds, fold[T]{first: item})
	}
	return folds
}

// mostFiles is the most files in a line.
const mostFiles = 3
