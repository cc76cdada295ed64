"""For a class: exercises that are checked against the student's own records, and many students' folders on one page."""
