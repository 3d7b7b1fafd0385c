import sys

from flashlab_course.figures.gallery import main

main(sys.argv[1:])
