"""Four attacks from outside, through the command line alone: does anything break silently?"""
