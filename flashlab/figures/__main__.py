import sys

from flashlab.figures.gallery import main

main(sys.argv[1:])
