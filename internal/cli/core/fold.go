package core

// mostAlike is the most items with the same cause that are printed one by one.
const mostAlike = 3

// A Folded is an item to print, with the others of the same cause, which are only counted.
type Folded[T any] struct {
	First  T
	Others []T
}

// Fold groups items for printing: if more than mostAlike have the same cause, only the first one is printed.
func Fold[T any](all []T, cause func(T) string) []Folded[T] {
	count := map[string]int{}
	for _, item := range all {
		count[cause(item)]++
	}
	var folds []Folded[T]
	places := map[string]int{}
	for _, item := range all {
		key := cause(item)
		if index, isKnown := places[key]; isKnown && count[key] > mostAlike {
			folds[index].Others = append(folds[index].Others, item)
			continue
		}
		places[key] = len(folds)
		folds = append(folds, Folded[T]{First: item})
	}
	return folds
}

// MostFiles is the most files in a line.
const MostFiles = 3
